"""Task graph: tasks and what they wait for, folded from facts and run by one strategy."""
