"""What grue shows: pictures and tables."""
