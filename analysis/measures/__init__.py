"""Tables of what traces show. ``tables`` holds the base tables; most others are made of them."""
