"""Reading data: published layouts, tables and generated ratings, checked and compact."""
