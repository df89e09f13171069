"""The machine's clock, where it differs from the manual one of the tests."""

from mnemo.runtime.clock import SystemClock


async def test_a_time_that_is_over_is_not_waited_for():
    """Less than nothing to sleep is nothing, as it is for ``ManualClock``."""
    await SystemClock().sleep(-1.0)
