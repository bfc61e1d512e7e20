import subprocess
import sys

HEAVY = (
    "numpy",
    "starlette",
    "uvicorn",
    "aiohttp",
    "rich",
    "asyncio",
    "psutil",
    "muster.store",
    "muster.api.everything",
)


def test_training_code_that_imports_the_sdk_gets_nothing_heavy_with_it():
    program = f"import sys, muster.sdk\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
