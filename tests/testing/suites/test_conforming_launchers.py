"""Our own launchers pass the suite that third parties' do."""

from __future__ import annotations

from turnout.testing import LauncherSuite


class TestLocal(LauncherSuite):
    spec = "local"
