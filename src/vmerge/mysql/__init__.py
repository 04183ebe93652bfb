"""The drivers: the only code that talks to MySQL. They translate and obey; they hold no policy and no threads."""
