var z={zh:"zh-1e56e668e4.json"};export{z as a};
