"""Headless Chromium for tests of pages."""

import contextlib
import json
import os
import shutil
import signal
from typing import Any, Dict, Iterator, List

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

_TIMEOUT = 60


class Browser:
    """A page in Chromium, with its requests and console messages."""

    def __init__(self, driver: Any):
        self._driver = driver

    def open(self, path: str, width: int = 1280) -> None:
        """Opens a local file in a window of a width in pixels."""
        size = {'width': width, 'height': 900, 'deviceScaleFactor': 1, 'mobile': False}
        self._send('Emulation.setDeviceMetricsOverride', size)
        self._driver.get(f'file://{path}')

    def run(self, script: str, *arguments: Any) -> Any:
        """Runs a script in the page, and returns its result."""
        return self._driver.execute_script(script, *arguments)

    def press_tab(self) -> None:
        """Presses the tabulator key in the focused element."""
        for kind in ('keyDown', 'keyUp'):
            key = {'key': 'Tab', 'code': 'Tab', 'windowsVirtualKeyCode': 9}
            self._send('Input.dispatchKeyEvent', {'type': kind, **key})

    def type(self, text: str) -> None:
        """Types text into the focused element."""
        self._send('Input.insertText', {'text': text})

    def complaints(self) -> List[str]:
        """Warnings and errors in the console since the last call."""
        return [entry['message'] for entry in self._driver.get_log('browser')]

    def requests(self) -> List[str]:
        """The URLs of requests since the last call."""
        messages = [json.loads(entry['message'])['message'] for entry in self._driver.get_log('performance')]
        return [each['params']['request']['url'] for each in messages if each['method'] == 'Network.requestWillBeSent']

    def _send(self, command: str, values: Dict[str, Any]) -> Any:
        return self._driver.execute_cdp_cmd(command, values)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Opens a browser, and closes it at the end. Without Chromium, the test is skipped, or fails if CI=true."""
    programs = {name: shutil.which(name) or '' for name in ('chromium', 'chromedriver')}
    missing = [name for name, path in programs.items() if not path]
    if missing:
        message = f'{" and ".join(missing)} not on PATH (Debian: apt-get install chromium chromium-driver)'
        if os.environ.get('CI') == 'true':
            pytest.fail(message)
        pytest.skip(message)
    options = webdriver.ChromeOptions()
    options.binary_location = programs['chromium']
    # Containers do not allow Chromium's sandbox, and have little shared memory.
    for argument in ('--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--hide-scrollbars'):
        options.add_argument(argument)
    options.set_capability('goog:loggingPrefs', {'browser': 'ALL', 'performance': 'ALL'})
    # A separate process session, so that all processes of Chromium can be killed together.
    service = Service(programs['chromedriver'], popen_kw={'start_new_session': True})
    driver = webdriver.Chrome(service=service, options=options)
    group = service.process.pid
    try:
        driver.set_page_load_timeout(_TIMEOUT)
        driver.set_script_timeout(_TIMEOUT)
        yield Browser(driver)
    finally:
        try:
            driver.quit()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
