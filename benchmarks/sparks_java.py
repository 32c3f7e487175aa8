"""Java as Spark starts it, for sessions in which Spark's own contenders run."""

# dagflow leaves out the second compiler in local runs, and Spark SQL lives from it.
SPARKS_JAVA = {"spark.driver.defaultJavaOptions": ""}
