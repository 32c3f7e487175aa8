"""What the server answers below `/api/v1/apps/ID/`: one module for each screen."""
