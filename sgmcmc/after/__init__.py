"""After the chain: draws corrected, judged, plotted, and converted for ArviZ."""
