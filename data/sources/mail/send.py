# ruff: noqa
"""A third one."""

import email.message
import json
import smtplib
from pathlib import Path

settings = json.loads(Path("mail.json").read_text())
message = email.message.EmailMessage()
smtplib.SMTP(settings["host"]).send_message(message)
