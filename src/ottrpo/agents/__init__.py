"""The agents: OTTRPO and the methods it is compared with."""
