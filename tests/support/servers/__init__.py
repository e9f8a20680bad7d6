"""Object stores on loopback that tests start as processes of their own."""
