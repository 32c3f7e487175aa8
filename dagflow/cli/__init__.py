"""The `dagflow` command: reads what a person typed, prints what the layers below answer."""
