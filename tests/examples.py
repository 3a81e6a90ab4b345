"""How many examples hypothesis draws for a property: a part of them in `make test`, all in `make test-slow`.

``pytest --hypothesis-profile deep`` draws all of them.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None)
settings.register_profile("deep", deadline=None, print_blob=True)
PART = 4
"""The divisor of the number of examples outside of the deep profile."""
LEAST = 10


def examples(count):
    """Return the settings of a property that takes so many examples when all are drawn."""
    if settings.get_current_profile_name() != "deep":
        count = min(count, max(count // PART, LEAST))
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]  # fixtures are read and not changed
    return settings(max_examples=count, deadline=None, suppress_health_check=checks)
