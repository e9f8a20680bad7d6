"""The error tree. Each class knows the exit code that the command line gives for it.

Every message is one sentence that says what was asked, what is so, and what to do. All of them take
that one string, so that they travel between processes unchanged.
"""


class DcpredError(Exception):
    """Any error that dcpred raises on purpose."""

    exit_code = 1


class RefusedError(DcpredError, ValueError):
    """Refused before anything was written."""

    exit_code = 3


class DataError(RefusedError):
    """The data are not what was asked for: shape, dtype, non-finite values, labels, missing chunks."""


class MissingChunkError(DataError):
    """A chunk of the input is not there."""


class DamagedChunkError(DataError):
    """A chunk of the input is there and cannot be decoded."""


class SettingsError(RefusedError):
    """A setting has an unknown name, or a value that it cannot have."""


class ModelFormatError(RefusedError):
    """A model artifact that cannot be trusted: no artifact, too new, incomplete or altered."""


class PlanConflictError(RefusedError):
    """The place for the result belongs to another plan."""


class SchedulerError(RefusedError):
    """The Dask cluster does not answer, or runs other versions than the driver."""


class SchedulerAwayError(SchedulerError):
    """The Dask cluster does not answer, or has no workers, now: another try may find it."""

    exit_code = 75


class IncompleteError(DcpredError):
    """The run ended with blocks that could not be done."""

    exit_code = 4


class ResourceError(DcpredError):
    """Disk, quota or permission."""

    exit_code = 5


class RunHeldError(DcpredError):
    """Another driver holds the run."""

    exit_code = 6


class InterruptedRunError(DcpredError):
    """The run was interrupted; running it again resumes it."""

    exit_code = 75
