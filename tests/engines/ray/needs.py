"""Ray, without which the tests here are skipped; in CI they fail."""

from tests.training.needs import need_later

ray = need_later("ray", "pip install 'penstock[ray]'")
