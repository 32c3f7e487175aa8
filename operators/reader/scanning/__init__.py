"""What record formats are made of: finds delimiters, frames records, parses text and columns."""
