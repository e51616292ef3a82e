"""One home per server dialect: configuration, launch arguments, metric names. Text in, records out."""
