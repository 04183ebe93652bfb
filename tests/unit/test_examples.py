"""The workflow files that users start from: in config, in the documentation and beside docker-compose.yml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from vmerge.config import load_workflow

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
WORKFLOWS = sorted([*(ROOT / "config").glob("*.yaml"), *(ROOT / "docker" / "workflows").glob("*.yaml")])
EXAMPLES = {f"{path.relative_to(ROOT)}": path.read_text() for path in WORKFLOWS} | {
    f"{page.relative_to(ROOT)}, example {number}": text
    for page in PAGES
    for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE), 1)
}
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SECRETS = "/run/secrets"


def test_there_are_examples_everywhere() -> None:
    """The README, the configuration folder and the containers each have a workflow to start from."""
    assert {"config/workflow.example.yaml", "docker/workflows/shop.yaml", "README.md, example 1"} <= EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_loads(name: str, tmp_path: Path) -> None:
    """Every example is a good workflow file once its secrets are there."""
    text = EXAMPLES[name].replace(SECRETS, str(tmp_path))
    for secret in re.findall(r"^\s*password_file: (\S+)", text, re.MULTILINE):
        (tmp_path / secret).write_text("secret\n")
        (tmp_path / secret).chmod(0o400)
    file = tmp_path / "workflow.yaml"
    file.write_text(text)
    variables = re.findall(r"^\s*password_env: (\S+)", text, re.MULTILINE)
    assert load_workflow(file, dict.fromkeys(variables, "secret")).streams


def test_the_containers_fit_their_workflow() -> None:
    """Hosts and secrets of the workflow are services and secrets of docker-compose.yml."""
    workflow = yaml.safe_load(EXAMPLES["docker/workflows/shop.yaml"])
    servers = [workflow["target"], *workflow["streams"].values()]
    services = COMPOSE["services"]
    assert {server["host"] for server in servers} | {"vmerge"} == services.keys()
    given = {f"{SECRETS}/{secret['source']}" for secret in services["vmerge"]["secrets"]}
    assert {server["password_file"] for server in servers} == given
    used = {name for server in servers for name in services[server["host"]]["secrets"]}
    assert used == COMPOSE["secrets"].keys()


def test_the_files_that_containers_mount_are_there() -> None:
    """Every path that docker-compose.yml and the Dockerfile take from the project exists."""
    mounts = [mount.split(":")[0] for service in COMPOSE["services"].values() for mount in service["volumes"]]
    copied = re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    paths = [mount for mount in mounts if mount.startswith("./")] + " ".join(copied).split()
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
