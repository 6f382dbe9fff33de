"""Programs that use the public interface only: the tour and the study."""
