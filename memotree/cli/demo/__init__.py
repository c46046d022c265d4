"""``memotree demo``: shows the main features on real input, on a private server. Import ``run_demo``."""

from contextlib import ExitStack
from pathlib import Path

from memotree.cli.context import CliContext
from memotree.cli.demo.private_server import fresh_folder, server_on
from memotree.cli.demo.script import WORKSPACE, Demo, readable
from memotree.cli.demo.steps import DemoSteps
from memotree.client import Client


def run_demo(cli: CliContext, data: Path) -> None:
    """Runs all steps on a new server; its data stays in ``data``."""
    stage = DemoSteps(cli.output)
    folder = fresh_folder(data)
    shown = readable(folder)
    stage.step("Start a private server with its own PostgreSQL and Qdrant", f"memotree serve --data {shown}")
    with ExitStack() as opened:
        with cli.output.waiting("Starting"):
            address = opened.enter_context(server_on(folder))
        client = opened.enter_context(Client(address, timeout=120.0, on_warning=cli.output.warn))
        stores = client.status().stores
        described = ", ".join(f"{store.name} {store.detail}".strip() for store in stores)
        stage.say(f"it listens at {address} after {stage.seconds:.1f} s ({described})", address=address)
        Demo(stage, client, folder).run()
    stage.step("Continue on your own")
    stage.say(f"everything took {stage.seconds:.1f} s; the data stays in {shown}", data=str(folder))
    for line in (
        f"memotree serve --data {shown}        # in another terminal",
        f"memotree ws use {WORKSPACE}",
        "memotree search 'how do decorators work'",
        "memotree node tree",
        "memotree log",
    ):
        stage.say(f"$ {line}")
    stage.end()
