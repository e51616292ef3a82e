"""Why a comparison came out as it did: causes with the figures that point to them, one module per kind of cause."""
