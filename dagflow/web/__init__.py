"""The pages that show runs, also those that are over: screens, and a file that holds one run."""
