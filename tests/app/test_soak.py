"""The visitor of the soak, for one short visit: it asks what the page asks today."""

import random
import time

from tests.bench.soak import Tally, Visitor, requests_in_turn, visit
from tests.browser.steps import served
from tests.helpers.fakes import FakeEngine


def test_a_visit_is_answered_as_a_page_is():
    number, tally = (
        0,
        Tally(),
    )  # the first visit stops its run, loads the page again and sends a file
    with served(FakeEngine()) as address:
        page = Visitor(address.rstrip("/"), tally, random.Random(number))
        request = next(requests_in_turn())
        visit(page, number, request, 60, time.monotonic())
        page.leave()
    assert not tally.wrong and tally.started == 1 and tally.requests >= 60
