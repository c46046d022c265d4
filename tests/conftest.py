"""What every test shares: how many examples hypothesis runs."""

from hypothesis import HealthCheck, settings

# Small by default, so that the whole suite stays quick; `pytest --hypothesis-profile=ci` looks deeper. Deadlines per
# example are off, because they would measure the machine and not the code.
settings.register_profile(
    "default", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(
    "ci", max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")
