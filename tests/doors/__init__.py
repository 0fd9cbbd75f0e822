"""Random agents from all parts of kaname, held against the reference monitor. Run `python -m tests.doors --cases 2000`."""
