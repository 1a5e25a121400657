"""Updates that say what they spent, asked of every policy whose region is certified by a plan."""


def learn(agent, updates):
    """What these updates report, of which each has moved and none has left its region."""
    reports = []
    with agent.telling(lambda told: reports.append(told.last_update)):
        agent.learn(updates * agent.n_steps)
    assert len(reports) == updates
    for report in reports:
        assert 0 < report["ot/spent"] <= report["ot/radius"]
        assert report["ot/violation"] == 0
        assert report["ot/dual_gap"] < 1e-9
    return reports
