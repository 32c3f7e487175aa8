"""What a visitor adds: each capability in one file of their own, outside of the project's packages."""
