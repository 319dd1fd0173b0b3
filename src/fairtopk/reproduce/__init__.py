"""The paper's experiments: plan, tables, figures and page."""
