"""Where windows run: Spark, processes of this machine, or this process."""
