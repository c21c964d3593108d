"""After the chain: draws corrected, judged, drawn, and handed to ArviZ."""
