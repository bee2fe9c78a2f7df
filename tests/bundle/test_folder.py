"""The data folder."""

from __future__ import annotations

import pytest

from trainvitals.bundle.folder import DataFolder
from trainvitals.bundle.process import BundleError


def test_without_a_name_it_is_temporary(guard):
    """It is there, and then it is not."""
    folder = DataFolder(None, guard)
    assert folder.temporary
    assert (folder.path / "logs").is_dir()
    folder.close()
    assert not folder.path.exists()


def test_with_a_name_it_is_kept_without_rank_files(tmp_path, guard):
    """Data and logs stay, the demo's rank files go."""
    folder = DataFolder(str(tmp_path / "new" / "data"), guard)
    folder.log("thing").write_text("said")
    (folder.path / "spool" / "demo.0.rank").write_text("")
    folder.close()
    assert (tmp_path / "new" / "data" / "logs" / "thing.log").read_text() == "said"
    assert not (tmp_path / "new" / "data" / "spool").exists()


def test_it_belongs_to_one_at_a_time(tmp_path, guard):
    """The second is told so, and may have it afterwards."""
    folder = DataFolder(str(tmp_path), guard)
    with pytest.raises(BundleError, match=r"another `trainvitals up` is using /"):
        DataFolder(str(tmp_path), guard)
    folder.close()
    DataFolder(str(tmp_path), guard).close()


def test_a_name_that_cannot_be_a_folder_is_refused_in_one_line(tmp_path, guard):
    """The line names path and reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError) as raised:
        DataFolder(str(tmp_path / "file"), guard)
    assert str(raised.value) == f"the data folder cannot be used: File exists: {tmp_path / 'file'}"


def test_the_log_of_an_earlier_start_is_gone(tmp_path, guard):
    """Last words must be those of this start."""
    folder = DataFolder(str(tmp_path), guard)
    folder.log("thing").write_text("old")
    assert not folder.log("thing").exists()
    folder.close()


@pytest.mark.parametrize("name", ["a:b", "a*", "a[b]", "a?", "a\\b"])
def test_a_name_that_would_be_a_pattern_is_refused(tmp_path, guard, name):
    """Prometheus could not be told to read rules there."""
    with pytest.raises(BundleError, match="must not contain"):
        DataFolder(str(tmp_path / name), guard)
    assert list(tmp_path.iterdir()) == []
