"""The table of built-in jobs."""

import pytest

from perdure.config import JobsConfig
from perdure.errors import ConfigFault, NotFound
from perdure.service.builtin_jobs import BUILTIN_JOBS, find_job, read_expressions


def test_every_job_has_a_setting_and_a_time():
    assert read_expressions(JobsConfig()).keys() == {known.name for known in BUILTIN_JOBS}
    assert all(read_expressions(JobsConfig()).values())
    with pytest.raises(ConfigFault):
        read_expressions(JobsConfig(sweep="soon"))
    with pytest.raises(NotFound, match="sweep"):
        find_job("swep")
