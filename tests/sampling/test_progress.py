"""Progress bars in notebooks: widgets where ipywidgets is there, text and no warning where it is not."""

import queue
import sys
import tempfile

import pytest

# These runs are short or bad on purpose: what is looked at is not their law.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

PATIENCE = 600  # seconds for what takes a few, on a machine that is busy with something else

CELL = """
import sys
{first}
from inbounds.sampling.progress import ProgressBar
with ProgressBar(100, 0, True, "sgld") as bar:
    bar.update(100)
"""


def outputs_of_a_cell(code):
    """What a notebook would show below a cell: messages of a real kernel."""
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    from jupyter_client.manager import KernelManager

    # Sockets with names: a port that is free when it is chosen may be taken when the kernel binds it.
    folder = tempfile.TemporaryDirectory(prefix="inbounds-")
    manager = KernelManager(transport="ipc", ip=f"{folder.name}/kernel")
    # The interpreter that runs the tests, whatever kernels are registered.
    manager.kernel_spec.argv[0] = sys.executable
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        asked = client.execute(code)
        messages = []
        while not messages or messages[-1]["content"].get("execution_state") != "idle":
            message = client.get_iopub_msg(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") == asked:
                messages.append(message)
    except queue.Empty:
        pytest.fail("the kernel gave no answer")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        folder.cleanup()
    assert not [message for message in messages if message["msg_type"] == "error"]
    return messages


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:PendingDeprecationWarning")
def test_a_notebook_shows_a_widget():
    pytest.importorskip("ipywidgets", reason="ipywidgets is not installed")
    messages = outputs_of_a_cell(CELL.format(first=""))
    shown = [message["content"]["data"] for message in messages if message["msg_type"] == "display_data"]
    assert any("application/vnd.jupyter.widget-view+json" in data for data in shown)


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:PendingDeprecationWarning")
def test_a_notebook_without_ipywidgets_shows_text_and_does_not_warn():
    messages = outputs_of_a_cell(CELL.format(first="sys.modules['ipywidgets'] = None"))
    text = "".join(message["content"].get("text", "") for message in messages if message["msg_type"] == "stream")
    assert "sgld: 100%" in text or "sgld:   0%" in text
    assert "Warning" not in text
    assert not [message for message in messages if message["msg_type"] == "display_data"]
