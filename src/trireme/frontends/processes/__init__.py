"""Front-end processes: they hold the sockets of clients, and the server process answers."""
