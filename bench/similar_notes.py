"""How well Remember tells which notes a new text resembles.

Each case has a note that is known; the same said in other words; the fact changed; and another fact about the same
subject, which is no reason to forget anything. All known notes are in one workspace, with forty notes beside them that
are like each other. Run it with ``python -m bench.similar_notes``.
"""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from memotree.cli.demo.private_server import server_on
from memotree.client import Client

CASES: Final = (
    (
        "The billing API allows 100 requests per minute.",
        "The billing API allows 100 requests per minute per key.",
        "The billing API allows 250 requests per minute.",
        "The billing API answers in JSON.",
    ),
    (
        "Production is deployed on Tuesdays only.",
        "We deploy production only on Tuesdays.",
        "Production is deployed on Wednesdays only.",
        "Production runs in three regions.",
    ),
    (
        "Ann leads the platform team.",
        "The platform team is led by Ann.",
        "Ben leads the platform team.",
        "Ann is on leave until June.",
    ),
    (
        "The staging database is reset every Monday morning.",
        "Every Monday morning the staging database is reset.",
        "The staging database is reset every Friday night.",
        "The staging database has a copy of last year's orders.",
    ),
    (
        "The user prefers dark mode in all editors.",
        "The user prefers dark mode in every editor.",
        "The user now prefers light mode in all editors.",
        "The user writes Python and Go.",
    ),
    (
        "Invoices are sent on the first day of the month.",
        "We send invoices on the first day of each month.",
        "Invoices are sent on the last day of the month.",
        "Invoices are written in euros.",
    ),
    (
        "The office in Lisbon opens at nine.",
        "The Lisbon office opens at nine.",
        "The office in Lisbon opens at ten.",
        "The office in Lisbon has room for forty people.",
    ),
    (
        "Retries grow from one second to thirty seconds.",
        "Retries grow from one second up to thirty seconds.",
        "Retries grow from two seconds to sixty seconds.",
        "Retries are logged with the id of the call.",
    ),
    (
        "Customer Acme is on the enterprise plan.",
        "Acme, a customer, is on the enterprise plan.",
        "Customer Acme is on the starter plan.",
        "Customer Acme has twelve users.",
    ),
    (
        "Backups are kept for thirty days.",
        "We keep backups for thirty days.",
        "Backups are kept for ninety days.",
        "Backups are encrypted with the key of the team.",
    ),
    (
        "The mobile app supports Android 12 and later.",
        "Android 12 and later are supported by the mobile app.",
        "The mobile app supports Android 14 and later.",
        "The mobile app is written in Kotlin.",
    ),
    (
        "Support answers within four hours on weekdays.",
        "On weekdays support answers within four hours.",
        "Support answers within one hour on weekdays.",
        "Support is reached by chat and by phone.",
    ),
    (
        "The password must have at least twelve characters.",
        "Passwords must have at least twelve characters.",
        "The password must have at least sixteen characters.",
        "The password is stored as an Argon2 hash.",
    ),
    (
        "Feature flags are switched on by the release manager.",
        "The release manager switches feature flags on.",
        "Feature flags are switched on by the team that owns them.",
        "Feature flags are removed after two releases.",
    ),
    (
        "Tests run on Python 3.11 and 3.12.",
        "The tests run on Python 3.11 and 3.12.",
        "Tests run on Python 3.12 and 3.13.",
        "Tests may not use the network.",
    ),
    (
        "The travel budget for 2026 is 40,000 euros.",
        "For 2026 the travel budget is 40,000 euros.",
        "The travel budget for 2026 is 55,000 euros.",
        "Travel is booked by the office manager.",
    ),
    (
        "Meeting notes go into the shared folder.",
        "Notes of meetings go into the shared folder.",
        "Meeting notes go into the wiki.",
        "Meetings are not longer than thirty minutes.",
    ),
    (
        "Dr. Chen is the family's dentist.",
        "The dentist of the family is Dr. Chen.",
        "Dr. Alvarez is the family's dentist.",
        "The dentist's practice is closed in August.",
    ),
    (
        "Mia is allergic to peanuts.",
        "Mia has an allergy: she is allergic to peanuts.",
        "Mia is not allergic to peanuts any more.",
        "Mia goes to school by bike.",
    ),
    (
        "The car needs winter tyres from November on.",
        "From November on the car needs winter tyres.",
        "The car needs winter tyres from October on.",
        "The car is parked behind the house.",
    ),
)
"""Known, the same in other words, changed, another fact of the same subject."""

SERVICES: Final = ("search", "orders", "mail", "login", "export", "import", "report", "cache", "queue", "proxy")
NEW_SERVICES: Final = ("audit", "batch", "notice", "ledger", "archive")
TEAMS: Final = ("Falcon", "Heron", "Lynx", "Otter", "Raven", "Badger", "Stork", "Marten", "Finch", "Bison")
FACTS: Final = (
    "The {name} service listens on port {port}.",
    "The {name} service is restarted on the {day}th of each month.",
    "The {name} service is owned by team {team}.",
    "The {name} service keeps its logs for {day} days.",
)


def main() -> None:
    """Remember the known notes, then look what each new text is told to resemble."""
    with tempfile.TemporaryDirectory() as folder, server_on(Path(folder)) as address, Client(address) as client:
        client.create_workspace("similar")
        notes = client.workspace("similar")
        for number, name in enumerate(SERVICES):
            for fact in FACTS:
                text = fact.format(name=name, port=8000 + number, day=number + 3, team=TEAMS[number])
                notes.remember(text, find_similar=False)
        ids = [notes.remember(known, find_similar=False).id for known, *_ in CASES]
        told: dict[str, Counter[str]] = {}
        others = alike = 0
        for node_id, (_, *texts) in zip(ids, CASES, strict=True):
            for kind, text in zip(("same", "changed", "other fact"), texts, strict=True):
                made = notes.remember(text)
                found = {one.node.id: str(one.similarity) for one in made.similar}
                told.setdefault(kind, Counter())[found.get(node_id, "nothing")] += 1
                others += len(found.keys() - {node_id})
                notes.forget(made.id)
        for number, name in enumerate(NEW_SERVICES):
            for fact in FACTS:
                text = fact.format(name=name, port=9000 + number, day=number + 17, team=TEAMS[-1 - number])
                made = notes.remember(text)
                alike += bool(made.similar)
                notes.forget(made.id)
    print("| the new text | told as a duplicate | told as superseded | not told |")
    print("|---|---:|---:|---:|")
    for kind, counts in told.items():
        print(f"| {kind} | {counts['DUPLICATE']} | {counts['SUPERSEDED']} | {counts['nothing']} |")
    count = len(NEW_SERVICES) * len(FACTS)
    print(
        f"\n{len(CASES)} cases; {others} other notes were told. Of {count} facts about new subjects, {alike} told any."
    )


if __name__ == "__main__":
    main()
