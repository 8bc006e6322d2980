"""Tiny wheels, so that environments can be made without a package index."""

import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str = "1.0", *, text: str = "", needs: tuple[str, ...] = ()) -> Path:
    """Make a wheel of one module, which has `VERSION`, with a program of its name that prints it."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    required = "".join(f"Requires-Dist: {one}\n" for one in needs)
    files = {
        f"{name}.py": text or f"VERSION = {version!r}\ndef main():\n    print({name!r}, VERSION)\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"])
    made = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return made
