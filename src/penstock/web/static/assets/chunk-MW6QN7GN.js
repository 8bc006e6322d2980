var z={zh:"zh-eafd91b37f.json"};export{z as a};
