"""Runs the workload on all peers at once: each round calls every peer in turn, so that all meet the same noise."""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from memotree_storage.errors import MemoTreeError
from rich.console import Console

from bench.figures import Figure
from bench.peers.environments import OUT, Kind, NotInstalledError
from bench.peers.outcome import CALLS, Outcome
from bench.peers.process import PeerError, Running, running
from bench.peers.program import TOP, Note, packed
from bench.peers.workload import MARK, OFTEN, Workload

_PER_LOAD: Final = 1000
"""Notes of one commit or transaction of the load."""

_WARM: Final = 3
"""Calls before those that count."""

_BLOCK: Final = 5
"""Calls of one peer in a row; the next peer's are made then."""

Call = Callable[[Running, int], Awaitable[float]]
"""Makes the call of a round, and returns its milliseconds."""


@dataclass(slots=True)
class Contest:
    """The peers that run, what they took, and what they answered wrongly."""

    peers: list[Running] = field(default_factory=list)
    samples: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def able(self, name: str) -> list[Running]:
        """The peers that have a call."""
        return [peer for peer in self.peers if name not in peer.lacks]

    async def rounds(self, name: str, count: int, call: Call) -> None:
        """Make a call in so many rounds after the warm-up; a peer whose call fails is left out of it from then on."""
        for start in range(0, count + _WARM, _BLOCK):
            for peer in self.able(name):
                for number in range(start, min(start + _BLOCK, count + _WARM)):
                    took = await self.attempt(peer, name, call(peer, number))
                    if took is None:
                        break
                    if number >= _WARM:
                        self.samples[peer.name][name].append(took)

    async def attempt(self, peer: Running, name: str, call: Awaitable[Any]) -> Any:
        """Wait for a call; if it fails, return ``None`` and remember that the peer lacks it."""
        try:
            return await call
        except PeerError as error:
            peer.lacks[name] = f"failed: {error}"
            self.samples[peer.name].pop(name, None)
            return None

    def outcome(self, peer: Running) -> Outcome:
        """What a peer did."""
        return Outcome(
            name=peer.name,
            versions=peer.versions,
            durability=peer.durability,
            figures={name: Figure.of(samples) for name, samples in self.samples[peer.name].items()},
            lacks=dict(peer.lacks),
            wrong=tuple(self.wrong[peer.name]),
        )


async def measure(kinds: Sequence[Kind], *, notes: int, words: int, rounds: int) -> list[Outcome]:
    """Run the workload on all peers that start.

    Args:
        kinds: The peers; ours is the first one.
        notes: How many notes there are.
        words: The words of a note.
        rounds: Calls of each kind.

    Returns:
        One outcome for each kind, in the same order.
    """
    skipped: dict[str, str] = {}
    async with _started(kinds, skipped) as peers:
        contest = Contest(peers)
        await _work(contest, notes=notes, words=words, rounds=rounds)
        done = {peer.name: contest.outcome(peer) for peer in peers}
    return [done.get(kind.name) or Outcome(kind.name, skipped=skipped[kind.name]) for kind in kinds]


@asynccontextmanager
async def _started(kinds: Sequence[Kind], skipped: dict[str, str]) -> AsyncIterator[list[Running]]:
    """The peers that start; for the others, the reason is put into ``skipped``."""
    say = Console(stderr=True)
    (OUT / "peers").mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        peers = []
        for kind in kinds:
            say.print(f"{kind.name} …")
            try:
                peers.append(await stack.enter_async_context(running(kind, OUT / "peers" / f"{kind.program}.log")))
            except (NotInstalledError, PeerError, MemoTreeError, OSError) as error:
                skipped[kind.name] = str(error)
                say.print(f"{kind.name} is skipped: {error}")
        yield peers


async def _work(contest: Contest, *, notes: int, words: int, rounds: int) -> None:
    say = Console(stderr=True)
    work = Workload(words)
    say.print(f"load of {notes:,} notes …")
    written = await work.notes(notes)
    await _load(contest, written)
    say.print("searches …")
    questions = await work.questions(rounds + _WARM)
    for name in ("search_words", "search_vector", "search_hybrid"):

        async def search(peer: Running, number: int, name: str = name) -> float:
            question = questions[number]
            vector = {} if name == "search_words" else {"vector": packed(question.vector)}
            return (await peer.call(name, text=question.text, **vector))[0]

        await contest.rounds(name, rounds, search)
    say.print("updates …")
    for name, size in (("update_one", 1), ("update_ten", 10)):
        changes = await work.changes(rounds + _WARM, size, notes)

        async def update(peer: Running, number: int, changes: list[list[Note]] = changes) -> float:
            return await peer.write("update", changes[number])

        await contest.rounds(name, rounds, update)
    await _past(contest, written, rounds)


async def _load(contest: Contest, notes: Sequence[Note]) -> None:
    """Load all notes and see that they can be found; a peer that cannot be loaded is left out of everything."""
    for peer in contest.peers:
        took = await contest.attempt(peer, "load", _loaded(peer, notes))
        if took is None:
            peer.lacks |= dict.fromkeys(CALLS, peer.lacks["load"])
            continue
        contest.samples[peer.name]["load"].append(took)
        for name in ("search_words", "search_vector"):
            if name not in peer.lacks:
                await contest.attempt(peer, name, _found(contest, peer, name, notes[-1]))


async def _found(contest: Contest, peer: Running, name: str, last: Note) -> bool:
    """See that a search finds what is there: the last note by its own word, enough notes by a vector.

    Which ones are nearest depends on the text that a vector is made of: MemoTree takes the summary, others all.
    """
    if name == "search_words":
        _, found = await peer.call(name, text=MARK)
        is_right = last.key in found
    else:
        _, found = await peer.call(name, text=MARK, vector=packed(last.vector))
        is_right = len(found) == TOP
    if not is_right:
        contest.wrong[peer.name].append(f"{name} found {len(found)} notes, not those that are there")
    return True


async def _loaded(peer: Running, notes: Sequence[Note]) -> float:
    """Milliseconds until all notes are written and can be found; the mark is set then."""
    took = 0.0
    for start in range(0, len(notes), _PER_LOAD):
        took += await peer.write("load", notes[start : start + _PER_LOAD])
    took += (await peer.call("settle"))[0]
    await peer.call("mark")
    return took


async def _past(contest: Contest, notes: Sequence[Note], rounds: int) -> None:
    """Look back after the updates, at notes that were updated one at a time."""
    often = notes[:OFTEN]
    for peer in contest.able("history_of_one"):
        await contest.attempt(peer, "history_of_one", peer.call("settle"))

    async def history(peer: Running, number: int) -> float:
        took, versions = await peer.call("history_of_one", key=often[number % len(often)].key)
        if versions < 2:
            contest.wrong[peer.name].append(f"history_of_one tells of {versions} versions of a note that was updated")
        return took

    async def as_of(peer: Running, number: int) -> float:
        note = often[number % len(often)]
        took, text = await peer.call("read_as_of", key=note.key)
        if text.strip() != note.text.strip():
            contest.wrong[peer.name].append("read_as_of did not return the text of before")
        return took

    await contest.rounds("history_of_one", rounds, history)
    await contest.rounds("read_as_of", rounds, as_of)
