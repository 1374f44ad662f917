"""`kasuri start`: a local page that takes a person from a file to a release, and writes the job file for it."""

from kasuri.start.desk import Desk
from kasuri.start.server import Door, application, listen, serve

__all__ = ["Desk", "Door", "application", "listen", "serve"]
