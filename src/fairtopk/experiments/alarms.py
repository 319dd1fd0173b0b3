"""Signs, while a run trains, that its fairness is not what it seems.

The penalty on softmax exposure can be met by flattening scores, by giving up on ranking, or by
turning the disadvantage round. Each is told once, in the log and on the screen.
"""

import math
from typing import Any

COLLAPSE = 0.5  # of the spread of scores after the warm-up, or at the first epoch without one
SETTLING = 5  # epochs that a last layer drawn anew may take to spread scores out again
FLIPPED = 0.5  # of the first gap, on the other side


def alarms(history: list[dict[str, Any]], gap: str) -> list[str]:
    """Return the alarms that a history's last record raises for the first time.

    Args:
        history: A record per epoch; the last one carries no alarms yet.
        gap: Name of the signed gap in a record.
    """
    told = {alarm for record in history[:-1] for alarm in record.get("alarms", [])}
    last = history[-1]
    earlier = [record for record in history if record["phase"] != last["phase"]]
    # Where the last layer is drawn anew, scores start flat: what counts is what they were.
    usual = earlier[-1] if earlier else history[0]
    first = next((record for record in history if gap in record), {})
    settled = not earlier or len(history) - len(earlier) > SETTLING
    found = []
    if settled and last.get("spread", math.inf) < COLLAPSE * usual.get("spread", 0):
        found.append("the spread of scores has halved: part of the gap's fall is flattening")
    if last.get("penalty_norm", 0) > last.get("ranking_norm", 0) > 0:
        found.append("the penalty's gradient outweighs the ranking's: expect NDCG to fall")
    if gap in first and gap in last and last[gap] * first[gap] < -FLIPPED * first[gap] ** 2:
        found.append("the signed gap has changed sides: it overshoots")
    return [alarm for alarm in found if alarm not in told]
