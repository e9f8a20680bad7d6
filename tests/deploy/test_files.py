"""What systemd and Prometheus themselves say of the files that we ship for them."""

import shutil
from pathlib import Path

import pytest

from support import processes

DEPLOY = Path(__file__).parents[2] / "deploy"


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@needs("systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """With the program in another place, where there is one."""
    for unit in (DEPLOY / "systemd").glob("*@.*"):
        text = unit.read_text().replace("/opt/dcpred/bin/dcpred", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    units = sorted(tmp_path.glob("*@.*"))
    assert len(units) == 3
    done = processes.run(["systemd-analyze", "verify", "--man=no", *units])
    assert (done.returncode, done.stderr) == (0, "")


@needs("systemd-analyze")
def test_systemd_would_refuse_what_is_wrong(tmp_path: Path) -> None:
    """The check can fail: a service that ends by itself may not be told to run again by exit code."""
    unit = DEPLOY / "systemd/dcpred-nightly@.service"
    text = unit.read_text().replace("/opt/dcpred/bin/dcpred", "/bin/true")
    (tmp_path / unit.name).write_text(text.replace("Type=exec", "Type=oneshot"))
    assert processes.run(["systemd-analyze", "verify", "--man=no", tmp_path / unit.name]).returncode != 0


@needs("promtool")
def test_alerts_are_given_when_they_should_be() -> None:
    done = processes.run(["promtool", "test", "rules", "rules_test.yml"], cwd=DEPLOY / "prometheus")
    assert done.returncode == 0, done.stdout + done.stderr
    rules = (DEPLOY / "prometheus/rules.yml").read_text().count("- alert:")
    tested = (DEPLOY / "prometheus/rules_test.yml").read_text()
    named = [
        line.split("alertname:")[1].split(",")[0].strip()
        for line in tested.splitlines()
        if "alertname:" in line
    ]
    assert rules == len(set(named))
