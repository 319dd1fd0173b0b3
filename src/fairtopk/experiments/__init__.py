"""What ties the rooms together: the command line and what it runs."""
