from tests.golden import golden as golden
