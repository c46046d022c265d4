"""``memotree demo``: shows what MemoTree is for, on a private server. Import ``run_demo``."""

from contextlib import ExitStack
from pathlib import Path

from memotree.cli.context import CliContext
from memotree.cli.demo.ending import next_commands
from memotree.cli.demo.private_server import default_folder, fresh_folder, server_on
from memotree.cli.demo.script import Demo
from memotree.cli.demo.steps import DemoSteps, command_line
from memotree.client import Client
from memotree.identity.key_file import local_key


def run_demo(cli: CliContext, data: Path | None) -> None:
    """Runs all steps on a new server; its data stays in ``data``, by default in the user's data folder."""
    stage = DemoSteps(cli.output)
    folder = (data or default_folder()).absolute()
    stage.step("Start a private server with its own PostgreSQL and Qdrant", command_line("serve", "--data", folder))
    with ExitStack() as opened:
        with stage.waiting("Preparing the folder"):
            fresh_folder(folder)
        with stage.waiting("Starting PostgreSQL, Qdrant and the server"):
            address = opened.enter_context(server_on(folder))
            client = opened.enter_context(
                Client(address, timeout=120.0, on_warning=cli.output.warn, contract_names=True, key=local_key(folder))
            )
            stores = client.status().stores
        described = ", ".join(f"{store.name} {store.detail}".strip() for store in stores)
        stage.say(f"it listens at {address} after {stage.seconds:.1f} s ({described})", address=address)
        Demo(stage, client, folder).run()
        with stage.waiting("Stopping the server"):
            opened.close()
    lines = next_commands(folder)
    stage.step("Continue on your own")
    stage.say(f"everything took {stage.seconds:.1f} s; the data stays in {folder}", data=str(folder), commands=lines)
    stage.say("in one terminal:")
    stage.commands(lines[:1])
    stage.say("in another one:")
    stage.commands(lines[1:])
    stage.end()
