"""`penstock top`: the cluster on a full screen. A client of the HTTP API by `penstock.client`, like the other commands.

`looks` asks and says what is shown, without Textual; `app` and the screens draw it. Textual is imported when a screen
opens, never by the declaration in `command`.
"""
