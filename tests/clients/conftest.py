"""A browser for each file of tests."""

import pytest
from clients.browser import Browser


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found


@pytest.fixture
def browser(window):
    """The one browser of the file, on an empty page, with nothing noted yet."""
    window.size(1280, 900)
    window.call("Page.navigate", url="about:blank")
    window.until("document.readyState === 'complete'")
    window.requests.clear()
    window.complaints.clear()
    return window
