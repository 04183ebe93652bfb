"""Finds a real ``mysqld``, or unpacks one from Debian's signed packages without installing anything.

Knows: where a server program may be, and how to run one that was unpacked beside the system. Never knows: data
folders, ports or running servers (``servers.py`` does), nor any address of a package mirror: that is read from
the machine's own apt configuration. Used by ``lab.servers``, and through it by demo, tests and benchmark.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vmerge.errors import PreflightError

logger = logging.getLogger(__name__)

HINT = (
    "Set VMERGE_MYSQLD to a mysqld program of MySQL 8.0 or newer, install MySQL, "
    "or run the servers of docker-compose.yml."
)
OLDEST_VERSION = (8, 0)
SUITE = "sid"  # the only suite of Debian that carries MySQL
PACKAGE = "mysql-server-core"
KEYRING_PACKAGE = "debian-archive-keyring"
KEYRINGS = tuple(Path("/usr/share/keyrings") / f"{KEYRING_PACKAGE}.{ending}" for ending in ("pgp", "gpg"))
COMMAND_TIMEOUT_SECONDS = 600.0

# Hooks of the system's configuration would act on the system's folders, so they are cleared; its proxies and
# passwords stay in force. The empty status file makes apt fetch every library, down to libc6, because the
# system's own may be too old. Private folders need neither root's rights nor apt's sandbox user.
APT_CONFIGURATION = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "{folder}";
Dir::State::lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Cache::archives "{folder}/cache/archives";
Dir::Log "{folder}/log";
Debug::NoLocking "true";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::Languages "none";
"""


@dataclass(frozen=True)
class Distribution:
    """A server program that runs on this machine."""

    command: tuple[str, ...]
    """How to start mysqld; the first option goes after it."""
    basedir: Path
    version: str


@dataclass(frozen=True)
class AptSource:
    """One line or stanza of the system's package sources."""

    kinds: tuple[str, ...]
    addresses: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str


def find_mysqld() -> Distribution:
    """The server that ``VMERGE_MYSQLD`` names, else the one on PATH, else Debian's, fetched once into the cache."""
    named = os.environ.get("VMERGE_MYSQLD")
    if named:
        return _named_distribution(Path(named))
    return _installed_distribution() or _fetched_distribution()


def cache_folder() -> Path:
    """Where programs and data templates are kept between runs."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "vmerge"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def exclusively(purpose: str) -> Iterator[None]:
    """Lets one process at a time fill the cache; the kernel frees the lock when its holder dies."""
    with (cache_folder() / f"{purpose}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _named_distribution(path: Path) -> Distribution:
    distribution = _unpacked_distribution(path) if path.is_dir() else _plain_distribution(path)
    if distribution is None:
        raise PreflightError(f"VMERGE_MYSQLD={path} is not a mysqld of MySQL 8.0 or newer", hint=HINT)
    return distribution


def _installed_distribution() -> Distribution | None:
    # The sbin folders are not on every user's PATH.
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/usr/libexec"])
    found = shutil.which("mysqld", path=search)
    return _plain_distribution(Path(found)) if found else None


def _plain_distribution(program: Path) -> Distribution | None:
    program = program.resolve()
    return _described((str(program),), basedir=program.parent.parent)


def _unpacked_distribution(root: Path) -> Distribution | None:
    """A server unpacked beside the system runs with its own loader and libraries, so the system's may be older."""
    basedir = root.resolve() / "usr"
    loaders = sorted((basedir / "lib").glob("*/ld-linux*.so.*"))
    if not loaders:
        return None
    libraries = f"{loaders[0].parent}:{basedir / 'lib/mysql/private'}"
    program = basedir / "sbin/mysqld"
    return _described((str(loaders[0]), "--library-path", libraries, str(program)), basedir)


def _described(command: tuple[str, ...], basedir: Path) -> Distribution | None:
    """The distribution if it starts and is MySQL (not MariaDB) and new enough."""
    try:
        answer = _run((*command, "--no-defaults", "--version"))
    except (OSError, PreflightError):
        return None
    match = re.search(r"Ver ((\d+)\.(\d+)\.\S+)", answer)
    if match is None or "MariaDB" in answer:
        return None
    if (int(match[2]), int(match[3])) < OLDEST_VERSION:
        return None
    return Distribution(command, basedir, version=match[1])


def _fetched_distribution() -> Distribution:
    cached = _cached_distribution()
    if cached is not None:
        return cached
    with exclusively("mysql"):
        return _cached_distribution() or _fetch()


def _cached_distribution() -> Distribution | None:
    for root in sorted(cache_folder().glob("mysql-[0-9]*"), reverse=True):
        distribution = _unpacked_distribution(root)
        if distribution is not None:
            return distribution
    return None


def _fetch() -> Distribution:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise PreflightError("no mysqld on PATH, and this system has no apt to fetch one with", hint=HINT)
    source = _system_source()
    # The temporary folder is beside its final place, so that the rename below is atomic.
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache_folder()) as name:
        folder = Path(name)
        logger.info("fetching MySQL from Debian's packages, once for this machine")
        archives = _download_server(folder / "server", source, keyring=_keyring(folder / "keyring", source))
        unpacked = folder / "unpacked"
        _unpack(archives, unpacked)
        distribution = _unpacked_distribution(unpacked)
        if distribution is None:
            raise PreflightError("the mysqld unpacked from Debian's packages does not start here", hint=HINT)
        place = cache_folder() / f"mysql-{distribution.version}"
        shutil.rmtree(place, ignore_errors=True)
        unpacked.rename(place)
    moved = _unpacked_distribution(place)
    assert moved is not None, "it started before it was renamed"
    logger.info("MySQL %s is in %s", moved.version, place)
    return moved


def _download_server(folder: Path, source: AptSource, keyring: Path) -> list[Path]:
    configuration = _private_apt(folder, f"deb [signed-by={keyring}] {source.addresses[0]} {SUITE} main\n")
    _run(("apt-get", "-c", str(configuration), "-q", "update"))
    _run(("apt-get", "-c", str(configuration), "-q", "-y", "--download-only", "install", PACKAGE))
    return sorted((folder / "cache/archives").glob("*.deb"))


def _keyring(folder: Path, source: AptSource) -> Path:
    """The newest archive keys that the system's own keys vouch for.

    The suite may be signed with keys younger than the system. They come in a package of the system's own suites,
    which its present keys sign, so the chain of trust has no gap. Where that package cannot be had, the present
    keys are used, and apt refuses the suite if it is not signed with them.
    """
    present = Path(source.signed_by) if source.signed_by.startswith("/") else _installed_keyring()
    suites = [suite for suite in source.suites if "/" not in suite]
    lines = [f"deb [signed-by={present}] {source.addresses[0]} {suite} main\n" for suite in suites]
    configuration = _private_apt(folder, "".join(lines))
    try:
        _run(("apt-get", "-c", str(configuration), "-q", "update"))
        _run(("apt-get", "-c", str(configuration), "-q", "download", KEYRING_PACKAGE), folder=folder)
    except PreflightError as error:
        logger.info("using the installed archive keys: %s", error.message)
        return present
    _unpack(sorted(folder.glob("*.deb")), folder / "unpacked")
    candidates = [folder / "unpacked" / keyring.relative_to("/") for keyring in KEYRINGS]
    return next((path for path in candidates if path.is_file()), present)


def _installed_keyring() -> Path:
    for keyring in KEYRINGS:
        if keyring.is_file():
            return keyring
    raise PreflightError(f"the package {KEYRING_PACKAGE} is not installed: signatures cannot be checked", hint=HINT)


def _private_apt(folder: Path, sources: str) -> Path:
    (folder / "lists/partial").mkdir(parents=True)
    (folder / "cache/archives/partial").mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(sources)
    configuration = folder / "apt.conf"
    configuration.write_text(APT_CONFIGURATION.format(folder=folder))
    return configuration


def _unpack(archives: list[Path], folder: Path) -> None:
    folder.mkdir()
    for archive in archives:
        if not archive.name.startswith(("perl", "libperl")):  # a sixth of the size, for scripts never run here
            _run(("dpkg-deb", "--extract", str(archive), str(folder)))


def _system_source() -> AptSource:
    """The system's source of Debian's main archive."""
    codename = _operating_system().get("VERSION_CODENAME", SUITE)
    wanted = {codename, "stable", "testing", "unstable", SUITE}
    for source in _system_sources():
        if "deb" in source.kinds and "main" in source.components and wanted & set(source.suites):
            return source
    raise PreflightError(
        "no mysqld on PATH, and the package sources name no Debian archive to fetch one from", hint=HINT
    )


def _operating_system() -> dict[str, str]:
    facts = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    if facts.get("ID") != "debian":
        raise PreflightError("no mysqld on PATH, and only on Debian can one be fetched", hint=HINT)
    return {name: value.strip('"') for name, value in facts.items()}


def _system_sources() -> Iterator[AptSource]:
    parts = sorted(Path("/etc/apt/sources.list.d").glob("*"))
    for path in [Path("/etc/apt/sources.list"), *parts]:
        if path.suffix == ".sources":
            yield from parse_stanzas(path.read_text())
        elif path.suffix == ".list" and path.is_file():
            yield from parse_lines(path.read_text())


def parse_stanzas(text: str) -> Iterator[AptSource]:
    """Sources in apt's newer form: fields, a blank line between sources."""
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", bare):
        joined = re.sub(r"\n[ \t]+", " ", stanza)
        pairs = (line.split(":", 1) for line in joined.splitlines() if ":" in line)
        fields = {name.strip().lower(): value.split() for name, value in pairs}
        if fields.get("enabled") == ["no"] or "uris" not in fields:
            continue
        yield AptSource(
            kinds=tuple(fields.get("types", ())),
            addresses=tuple(fields["uris"]),
            suites=tuple(fields.get("suites", ())),
            components=tuple(fields.get("components", ())),
            signed_by=" ".join(fields.get("signed-by", ())),
        )


def parse_lines(text: str) -> Iterator[AptSource]:
    """Sources in apt's older form: one a line, options in brackets."""
    for line in text.splitlines():
        match = re.match(r"\s*(deb|deb-src)\s+(?:\[([^]]*)\]\s*)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if match is None:
            continue
        kind, options, address, suite, components = match.groups()
        signed_by = re.search(r"signed-by=(\S+)", options or "")
        yield AptSource((kind,), (address,), (suite,), tuple(components.split()), signed_by[1] if signed_by else "")


def _run(command: tuple[str, ...], folder: Path | None = None) -> str:
    """Standard output of a command that must succeed; otherwise its last words, as an error for the operator."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_TIMEOUT_SECONDS,
        env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
    )
    if done.returncode != 0:
        raise PreflightError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-600:]}", hint=HINT)
    return done.stdout
