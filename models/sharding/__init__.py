"""A model's weights over several ranks: what each rank has of every parameter, and how ranks add up."""
