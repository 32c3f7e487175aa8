"""Where windows run: Spark, or this process."""
